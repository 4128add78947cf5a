"""What a worker's machine has, which models it holds just now, and that it may rest.

Revision 0011, after 0010.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_BEFORE = "state IN ('starting', 'ready', 'draining', 'unwell', 'stopped')"
_AFTER = "state IN ('starting', 'ready', 'draining', 'resting', 'unwell', 'stopped')"


def upgrade() -> None:
    with op.batch_alter_table("workers") as table:
        table.add_column(sa.Column("gpu_cores", sa.Integer()))
        table.add_column(sa.Column("memory_bytes", sa.BigInteger()))
        table.add_column(sa.Column("pinned_models", sa.JSON()))
        table.add_column(sa.Column("loaded_models", sa.JSON()))
        table.drop_constraint(op.f("ck_workers_state"), type_="check")
        table.create_check_constraint(op.f("ck_workers_state"), _AFTER)


def downgrade() -> None:
    op.execute("UPDATE workers SET state = 'draining' WHERE state = 'resting'")
    with op.batch_alter_table("workers") as table:
        table.drop_constraint(op.f("ck_workers_state"), type_="check")
        table.create_check_constraint(op.f("ck_workers_state"), _BEFORE)
        for column in ("loaded_models", "pinned_models", "memory_bytes", "gpu_cores"):
            table.drop_column(column)
