-- S4 names its columns and that none may be null; the key and the lengths are ours.
CREATE TABLE movies (
    movie_id     int          NOT NULL PRIMARY KEY,
    title        varchar(255) NOT NULL,
    release_year int          NOT NULL
);
