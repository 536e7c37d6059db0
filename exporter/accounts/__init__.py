"""Accounting: the ledger of the time, energy and errors that each container had of each device. Pure."""
