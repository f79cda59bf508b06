"""The token-level simulator of BroRL, section 4.1: numpy, no torch."""
