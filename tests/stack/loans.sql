CREATE TABLE loans (loan_id int PRIMARY KEY, lender text, value numeric(12, 2), due date);
INSERT INTO loans SELECT n, 'Lender ' || n % 3, n * 1000.5, DATE '2030-01-01' + n FROM generate_series(1, 30) n;
