-- A BEFORE UPDATE trigger makes PostgreSQL lock each row of an update before WHEN is checked, and write the lock to the
-- WAL. An AFTER UPDATE trigger whose WHEN is false locks nothing. So rows are now corrected after an update, by another
-- update. This happens when a run fails, is cancelled, resumed or settled. For a new row, the triggers stay as they were.
DROP TRIGGER "Order_Header_reopened" ON "Order_Header";--> statement-breakpoint
CREATE TRIGGER "Order_Header_reopened" BEFORE INSERT ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL
		AND NEW."Status" IN ('Queued', 'Running', 'Retrying', 'Waiting'))
	EXECUTE FUNCTION "Order_Header_reopen"();--> statement-breakpoint
DROP TRIGGER "Order_Header_ended" ON "Order_Header";--> statement-breakpoint
CREATE TRIGGER "Order_Header_ended" BEFORE INSERT ON "Order_Header"
	FOR EACH ROW WHEN ((NEW."Status" IN ('Failed', 'Cancelled')) <> (NEW."EndedAs" IS NOT NULL)
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_end"();--> statement-breakpoint
-- The function works for every search_path, and for a role that may update only some columns.
CREATE FUNCTION "Order_Header_correct"() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	EXECUTE format('UPDATE %I.%I SET
		"CompletedAt" = CASE WHEN $2 OR $1."Status" = ''Completed'' THEN $1."CompletedAt" END,
		"EndedAs" = CASE WHEN $2 THEN $1."Status" END,
		"EndedClass" = CASE WHEN $2 THEN coalesce($1."ErrorClass", '''') END,
		"EndedInDoubt" = CASE WHEN $2 THEN $1."InDoubt" END
		WHERE "Process" = $1."Process" AND "TransactionID" = $1."TransactionID" AND "ReplayID" = $1."ReplayID"',
		TG_TABLE_SCHEMA, TG_TABLE_NAME)
		USING NEW, NEW."Status" IN ('Failed', 'Cancelled');
	RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_corrected" AFTER UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL AND NEW."Status" IN ('Queued', 'Running', 'Retrying', 'Waiting')
		OR (NEW."Status" IN ('Failed', 'Cancelled')) <> (NEW."EndedAs" IS NOT NULL)
		OR NEW."EndedAs" <> NEW."Status" COLLATE "C"
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_correct"();
