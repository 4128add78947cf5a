"""The cost ledger in SQL: charges and the reports over them."""
