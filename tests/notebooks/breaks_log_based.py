"""What is broken behind the checks of notebooks 31 to 35; how a break is written stands in breaking.py."""
from breaking import Break, Run

SOURCE = """
def source(statement):
    postgres.execute(world, statement, database=log_based.DATABASE)
"""
SOURCE_DATABASE = [Run(
    Break("stamp = ", SOURCE + 'source("ALTER TABLE language DISABLE TRIGGER ALL")',
          {"an update has set last_update": "later time"}, back='source("ALTER TABLE language ENABLE TRIGGER ALL")'),
    Break('films = log_based.flow.rows(world, "film"', SOURCE + """
source("UPDATE film SET rental_rate = 7.77, special_features = '{Trailers}' WHERE film_id = 1")""",
          {"as in reference table S7/film_1": ("row=1, rental_rate", "7.77"),
           "as in reference table S7/films_before": ("row=1, rental_rate", "7.77"),
           "special features of film 1": "source ['Trailers']"}),
    Break("a column that the log does not have is told", 'source("ALTER TABLE film DROP COLUMN revenue_projection")',
          {"a column that the log does not have is told": "no failure"}),
    Break("reading the copies of films is refused", """
user = world.postgres.replication_user
source(f"GRANT SELECT ON inventory TO {user}; GRANT DELETE ON film TO {user}")""",
          {"reading the copies of films is refused": "no failure",
           "writing a film is refused": "violates foreign key"}),
    Break("counts = {name: log_based.flow.count(world, name)",
          'source("DELETE FROM film_actor WHERE film_id = 376")',
          {"rows of the six tables": "film_actor", "actors of films 375 and 376": "375"}),
    Break("stamped = postgres.frame(", 'source("DROP TRIGGER update_last_update_column_language ON language")',
          {"tables with a trigger for last_update": "language"}),
    Break("published = postgres.publications(", """
postgres.drop_publication(world, log_based.flow.publication, log_based.DATABASE)
source("CREATE TABLE loans (n int); ALTER TABLE actor REPLICA IDENTITY FULL")
source(f"CREATE PUBLICATION {log_based.flow.publication} FOR ALL TABLES")""",
          {"published tables": "public.loans", "published FOR ALL TABLES": "database true",
           "old rows are told by": "full row"},
          back="""
postgres.drop_publication(world, log_based.flow.publication, log_based.DATABASE)
source("DROP TABLE loans")"""),
    harms="31_source_database",
)]
