"""Counted work and its price. Needs no torch, so that plans can be judged on a login node."""

from unmask.cost.work import Ledger, Work

__all__ = ["Ledger", "Work"]
