"""How long searches of WeNet models take."""
