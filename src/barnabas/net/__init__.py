"""The real network: framed connections over sockets."""
