"""Counted work and its price. Needs no torch, so that plans can be judged on a login node."""

from unmask.cost.demand import Demand, demand_of
from unmask.cost.model import MachineModel, machine_model
from unmask.cost.price import Price, price_of, total_price
from unmask.cost.roofline import DEVICES, Device, least_seconds
from unmask.cost.shape import ModelShape
from unmask.cost.work import Ledger, Work

__all__ = [
    "DEVICES",
    "Demand",
    "Device",
    "Ledger",
    "MachineModel",
    "ModelShape",
    "Price",
    "Work",
    "demand_of",
    "least_seconds",
    "machine_model",
    "price_of",
    "total_price",
]
