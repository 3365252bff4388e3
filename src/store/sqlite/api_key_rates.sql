-- The rates of API keys.

alter table families add column key_rate text; -- such as 100/min; null: none
