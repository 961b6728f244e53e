"""Where the server's certificate comes from."""
