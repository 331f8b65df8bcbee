-- Columns and statuses for events, skipped and repeated steps, undo, children and priorities. A version that does not
-- know them ignores the columns, and sets none of the statuses.
-- The new conditions allow the same rows as before and more, so the existing rows violate none. They are validated after
-- the migration, because a check here would read the whole table under a lock that all other statements wait for.
ALTER TABLE "Order_Header"
	DROP CONSTRAINT "Order_Header_Status",
	ADD COLUMN "ParentProcess" text collate "C",
	ADD COLUMN "ParentTransactionID" text collate "C",
	ADD COLUMN "ParentReplayID" integer,
	ADD COLUMN "ParentPlace" text collate "C",
	ADD COLUMN "Priority" smallint DEFAULT 0 NOT NULL,
	ADD CONSTRAINT "Order_Header_Status" CHECK ("Status" = any ('{Queued,Running,Retrying,Waiting,Completed,Failed,Cancelled,Undoing,Undone,UndoFailed}')) NOT VALID;--> statement-breakpoint
ALTER TABLE "Order_Item"
	DROP CONSTRAINT "Order_Item_Status",
	ADD COLUMN "State" jsonb,
	ADD COLUMN "Round" integer,
	ADD COLUMN "Report" jsonb,
	ADD COLUMN "Ask" jsonb,
	ADD COLUMN "Sender" jsonb,
	ADD CONSTRAINT "Order_Item_Status" CHECK ("Status" = any ('{Running,Retrying,Waiting,InDoubt,Completed,Failed,Cancelled,Copied,Received,Skipped,Undone}')) NOT VALID;--> statement-breakpoint
-- The triggers treat an undone run like a failed one, and a run that is being undone like every active one.
CREATE OR REPLACE FUNCTION "Order_Header_end"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW."Status" IN ('Failed', 'Cancelled', 'Undone', 'UndoFailed') THEN
		NEW."EndedAs" := NEW."Status";
		NEW."EndedClass" := coalesce(NEW."ErrorClass", '');
		NEW."EndedInDoubt" := NEW."InDoubt";
	ELSE
		NEW."EndedAs" := NULL;
		NEW."EndedClass" := NULL;
		NEW."EndedInDoubt" := NULL;
	END IF;
	RETURN NEW;
END $$;--> statement-breakpoint
CREATE OR REPLACE FUNCTION "Order_Header_correct"() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	EXECUTE format('UPDATE %I.%I SET
		"CompletedAt" = CASE WHEN $2 OR $1."Status" = ''Completed'' THEN $1."CompletedAt" END,
		"EndedAs" = CASE WHEN $2 THEN $1."Status" END,
		"EndedClass" = CASE WHEN $2 THEN coalesce($1."ErrorClass", '''') END,
		"EndedInDoubt" = CASE WHEN $2 THEN $1."InDoubt" END
		WHERE "Process" = $1."Process" AND "TransactionID" = $1."TransactionID" AND "ReplayID" = $1."ReplayID"',
		TG_TABLE_SCHEMA, TG_TABLE_NAME)
		USING NEW, NEW."Status" IN ('Failed', 'Cancelled', 'Undone', 'UndoFailed');
	RETURN NULL;
END $$;--> statement-breakpoint
CREATE OR REPLACE TRIGGER "Order_Header_reopened" BEFORE INSERT ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL AND NEW."Status" = any ('{Queued,Running,Retrying,Waiting,Undoing}'))
	EXECUTE FUNCTION "Order_Header_reopen"();--> statement-breakpoint
CREATE OR REPLACE TRIGGER "Order_Header_ended" BEFORE INSERT ON "Order_Header"
	FOR EACH ROW WHEN ((NEW."Status" = any ('{Failed,Cancelled,Undone,UndoFailed}')) <> (NEW."EndedAs" IS NOT NULL)
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_end"();--> statement-breakpoint
CREATE OR REPLACE TRIGGER "Order_Header_corrected" AFTER UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL AND NEW."Status" = any ('{Queued,Running,Retrying,Waiting,Undoing}')
		OR NEW."EndedAs" IS DISTINCT FROM
			CASE WHEN NEW."Status" = any ('{Failed,Cancelled,Undone,UndoFailed}') THEN NEW."Status" COLLATE "C" END
		OR NEW."EndedInDoubt" <> NEW."InDoubt")
	EXECUTE FUNCTION "Order_Header_correct"();
