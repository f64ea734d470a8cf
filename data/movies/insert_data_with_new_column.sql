INSERT INTO movies (movie_id, title, release_year, COUNTRY) VALUES
    (201, 'The Rules of the Game', 1939, 'France'),
    (202, 'Citizen Kane', 1941, 'United States'),
    (203, 'Rome, Open City', 1945, 'Italy'),
    (204, 'Bicycle Thieves', 1948, 'Italy'),
    (205, 'The Third Man', 1949, 'United Kingdom'),
    (206, 'Rashomon', 1950, 'Japan'),
    (207, 'Tokyo Story', 1953, 'Japan'),
    (208, 'Pather Panchali', 1955, 'India'),
    (209, 'The Seventh Seal', 1957, 'Sweden'),
    (210, 'The 400 Blows', 1959, 'France'),
    (211, 'Black God, White Devil', 1964, 'Brazil'),
    (212, 'Black Girl', 1966, 'Senegal');
