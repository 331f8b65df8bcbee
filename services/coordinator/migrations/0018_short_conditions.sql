-- In each statement that inserts or updates rows, PostgreSQL parses the stored form of the CHECK constraints of the
-- table and of the WHEN conditions of its triggers. This took a third of the time of an update of a single row. The
-- conditions are shorter now. They allow the same rows as before, and the triggers fire for the same rows, so the
-- existing rows need no check. A check would read the whole table under a lock that all other statements wait for.
ALTER TABLE "Order_Header"
	DROP CONSTRAINT "Order_Header_NotBefore",
	DROP CONSTRAINT "Order_Header_Status",
	DROP CONSTRAINT "Order_Header_numbers",
	DROP CONSTRAINT "Order_Header_times",
	ADD CONSTRAINT "Order_Header_Status" CHECK ("Status" = any ('{Queued,Running,Retrying,Waiting,Completed,Failed,Cancelled}')) NOT VALID,
	ADD CONSTRAINT "Order_Header_numbers" CHECK (0 <= all (array["ReplayID", "Version", "Attempt", "SweepCount"]) and "SweepCount" <= 1000000) NOT VALID,
	ADD CONSTRAINT "Order_Header_times" CHECK ('[0001-01-02 00:00+00,9999-12-30 00:00+00]'::tstzrange @> all (array["LeaseUntil", "StartedAt", "NextAttemptAt", "NextSweepAt", "CreatedAt", "UpdatedAt", "CompletedAt", "ErasedAt", "PurgedAt", "DeadlineAt", "NotBefore"])) NOT VALID;--> statement-breakpoint
ALTER TABLE "Order_Item"
	DROP CONSTRAINT "Order_Item_Status",
	ADD CONSTRAINT "Order_Item_Status" CHECK ("Status" = any ('{Running,Retrying,Waiting,InDoubt,Completed,Failed,Cancelled,Copied}')) NOT VALID;--> statement-breakpoint
CREATE OR REPLACE TRIGGER "Order_Header_reopened" BEFORE INSERT ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL AND NEW."Status" = any ('{Queued,Running,Retrying,Waiting}'))
	EXECUTE FUNCTION "Order_Header_reopen"();--> statement-breakpoint
CREATE OR REPLACE TRIGGER "Order_Header_ended" BEFORE INSERT ON "Order_Header"
	FOR EACH ROW WHEN ((NEW."Status" = any ('{Failed,Cancelled}')) <> (NEW."EndedAs" IS NOT NULL)
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_end"();--> statement-breakpoint
CREATE OR REPLACE TRIGGER "Order_Header_corrected" AFTER UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL AND NEW."Status" = any ('{Queued,Running,Retrying,Waiting}')
		OR NEW."EndedAs" IS DISTINCT FROM
			CASE WHEN NEW."Status" = any ('{Failed,Cancelled}') THEN NEW."Status" COLLATE "C" END
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_correct"();
