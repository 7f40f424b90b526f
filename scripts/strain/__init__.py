"""What the checks under load share: a real server in a process of its own, and clients that behave well and badly."""
