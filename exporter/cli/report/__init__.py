"""`report`: who held and used what over a span."""
