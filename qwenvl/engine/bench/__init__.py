"""`python -m qwenvl bench`: how fast this machine answers, beside what it could do and what other engines do on it."""
