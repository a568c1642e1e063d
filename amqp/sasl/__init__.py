"""SASL layers and handshakes of both sides of a connection."""
