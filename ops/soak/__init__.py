"""The soak run: thousands of jobs through a real stack while its parts are broken, then an audit."""
