"""BroRL's one-step theory in closed form: numpy float64, no torch, no I/O."""
