"""Protection of the HTTP server: deadlines, limits, headers, hosts and origins."""
