-- As in the log.

alter table endings add column client text;
