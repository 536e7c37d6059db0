"""How much of a device each container had: fields, dividing, and the ledger of time, energy and errors. Pure."""
