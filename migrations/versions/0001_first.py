"""All tables.

Revision 0001, the first. `migrations.first` writes its statements.
"""

from alembic import op

from migrations import first

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    for statement in first.statements(connection.dialect.name):
        connection.exec_driver_sql(statement)


def downgrade() -> None:
    for table in reversed(first.tables(op.get_bind().dialect.name)):
        op.drop_table(table)
