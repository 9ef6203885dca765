-- Every row gets its verdict soon after: with room on its page the update touches no index.
ALTER TABLE ended SET (fillfactor = 50);
