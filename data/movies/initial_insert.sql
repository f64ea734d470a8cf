-- S4 prints no rows; these are ours. More than ten, so that a file of ten is full.
INSERT INTO movies (movie_id, title, release_year) VALUES
    (101, 'A Trip to the Moon', 1902),
    (102, 'The Great Train Robbery', 1903),
    (103, 'The Cabinet of Dr. Caligari', 1920),
    (104, 'Nosferatu', 1922),
    (105, 'Safety Last!', 1923),
    (106, 'Battleship Potemkin', 1925),
    (107, 'Metropolis', 1927),
    (108, 'The Passion of Joan of Arc', 1928),
    (109, 'Man with a Movie Camera', 1929),
    (110, 'City Lights', 1931),
    (111, 'The Blood of a Poet', 1932),
    (112, 'It Happened One Night', 1934);
