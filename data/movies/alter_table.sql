-- Required, as S4's second version has it: the rows that are there get the empty text.
ALTER TABLE movies ADD COLUMN COUNTRY varchar(64) NOT NULL;
