"""Tables (`show`) and pictures (`draw`)."""
