-- A BEFORE UPDATE trigger makes PostgreSQL lock each row of an update before WHEN is checked, and write the lock to the
-- WAL. An AFTER UPDATE trigger whose WHEN is false locks nothing. So rows are now corrected after an update, by another
-- update. For a new row, the triggers stay as they were.
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
CREATE FUNCTION "Order_Header_correct"() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	ended boolean := NEW."Status" IN ('Failed', 'Cancelled');
BEGIN
	UPDATE "Order_Header" SET
		"CompletedAt" = CASE WHEN ended OR NEW."Status" = 'Completed' THEN NEW."CompletedAt" END,
		"EndedAs" = CASE WHEN ended THEN NEW."Status" END,
		"EndedClass" = CASE WHEN ended THEN coalesce(NEW."ErrorClass", '') END,
		"EndedInDoubt" = CASE WHEN ended THEN NEW."InDoubt" END
	WHERE "Process" = NEW."Process" AND "TransactionID" = NEW."TransactionID" AND "ReplayID" = NEW."ReplayID";
	RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_corrected" AFTER UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL AND NEW."Status" IN ('Queued', 'Running', 'Retrying', 'Waiting')
		OR (NEW."Status" IN ('Failed', 'Cancelled')) <> (NEW."EndedAs" IS NOT NULL)
		OR NEW."EndedAs" <> NEW."Status" COLLATE "C"
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_correct"();
