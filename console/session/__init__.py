"""Sessions of browsers: logins, connections to the broker, and bounds on both."""
