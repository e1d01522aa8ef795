"""Users: registration, verification, passwords, and the three ways of proving who is asking."""
