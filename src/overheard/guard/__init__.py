"""Know before you send: a client decodes its own update, because it holds the secret."""
