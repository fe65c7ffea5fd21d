"""Counted work and its price. Needs no torch, so that plans can be judged on a login node."""

from unmask.cost.price import Price, price_of, total_price
from unmask.cost.roofline import DEVICES, Device, least_seconds
from unmask.cost.shape import ModelShape
from unmask.cost.work import Ledger, Sharing, Work

__all__ = [
    "DEVICES",
    "Device",
    "Ledger",
    "ModelShape",
    "Price",
    "Sharing",
    "Work",
    "least_seconds",
    "price_of",
    "total_price",
]
