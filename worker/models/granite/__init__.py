"""IBM's Granite Speech 5 TurboCTC: a Conformer that attends in blocks and pools its frames, below CTC."""
