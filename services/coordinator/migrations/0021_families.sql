-- The families: the children that a place of a run has started, and their counts. A release that does not know families
-- ignores the table and the column. The trigger below counts also the runs that such a release ends.
CREATE TABLE "Order_Family" (
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"ReplayID" integer NOT NULL,
	"Place" text collate "C" NOT NULL,
	"ChildProcess" text collate "C" NOT NULL,
	"OfReplayID" integer NOT NULL,
	"Prefix" text NOT NULL,
	"Total" integer NOT NULL,
	"Stored" integer DEFAULT 0 NOT NULL,
	"Pending" integer DEFAULT 0 NOT NULL,
	"Waiting" integer DEFAULT 0 NOT NULL,
	"Failed" integer DEFAULT 0 NOT NULL,
	"Tolerated" integer NOT NULL,
	"Concurrent" integer,
	"NextItem" integer DEFAULT 0 NOT NULL,
	"DeadlineMs" double precision,
	"Cascaded" boolean DEFAULT false NOT NULL,
	"ResumedAt" timestamp with time zone,
	"PurgedAt" timestamp with time zone,
	"NextSweepAt" timestamp with time zone,
	CONSTRAINT "Order_Family_Process_TransactionID_ReplayID_Place_pk" PRIMARY KEY("Process","TransactionID","ReplayID","Place")
);
--> statement-breakpoint
-- Each end of a child updates the row of its family, so a page needs room for many versions of the row.
ALTER TABLE "Order_Family" SET (fillfactor = 40);--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "ParentItem" integer;--> statement-breakpoint
CREATE INDEX "Order_Family_due" ON "Order_Family" USING btree ("NextSweepAt") WHERE "NextSweepAt" is not null;--> statement-breakpoint
CREATE INDEX "Order_Header_children" ON "Order_Header" USING btree ("ParentProcess","ParentTransactionID","ParentReplayID","ParentPlace","ParentItem") WHERE "ParentProcess" is not null;--> statement-breakpoint
-- Gives free turns to the children that wait for one, in the order of the list. The caller has locked the row of the
-- family. A child that is locked is skipped, because its lock is held by a statement that will wait for this row.
CREATE FUNCTION "Order_Family_grant"(f "Order_Family") RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	free integer := f."Concurrent" - (f."Pending" - f."Waiting");
	granted integer;
	last integer;
BEGIN
	IF free IS NULL OR free <= 0 OR f."Waiting" <= 0 OR f."Failed" > f."Tolerated" OR f."Cascaded" THEN
		RETURN;
	END IF;
	WITH n AS (
		SELECT "Process", "TransactionID", "ReplayID", "ParentItem" FROM "Order_Header"
		WHERE "ParentProcess" = f."Process" AND "ParentTransactionID" = f."TransactionID"
			AND "ParentReplayID" = f."ReplayID" AND "ParentPlace" = f."Place" AND "ParentItem" >= f."NextItem"
			-- coalesce keeps PostgreSQL from reading the runs of all families that wait.
			AND coalesce("WaitingFor", '') = 'turn:' || f."Place" AND "Status" = 'Waiting'
		ORDER BY "ParentItem" LIMIT free FOR UPDATE SKIP LOCKED
	), moved AS (
		UPDATE "Order_Header" h SET "Status" = 'Queued', "Version" = h."Version" + 1, "WaitingFor" = NULL,
			"NextAttemptAt" = now(), "NextSweepAt" = now(), "SweepCount" = 0, "UpdatedAt" = now(),
			"DeadlineAt" = now() + f."DeadlineMs" * interval '1 ms'
		FROM n WHERE h."Process" = n."Process" AND h."TransactionID" = n."TransactionID"
			AND h."ReplayID" = n."ReplayID"
		RETURNING n."ParentItem"
	)
	SELECT count(*), max("ParentItem") INTO granted, last FROM moved;
	UPDATE "Order_Family" SET "Waiting" = "Waiting" - granted, "NextItem" = coalesce(last + 1, 0)
		WHERE "Process" = f."Process" AND "TransactionID" = f."TransactionID" AND "ReplayID" = f."ReplayID"
			AND "Place" = f."Place";
END $$;--> statement-breakpoint
-- Counts a child that has ended or goes on. "EndedAs" of an ended run is set unless it was completed; for a run that
-- ends now, "Order_Header_corrected" sets it later. So the old row is judged by "EndedAs", the new one by "Status".
CREATE FUNCTION "Order_Header_join"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	family "Order_Family";
BEGIN
	UPDATE "Order_Family" f SET
		"Pending" = f."Pending" + (NEW."CompletedAt" IS NULL)::int - (OLD."CompletedAt" IS NULL)::int,
		"Waiting" = f."Waiting"
			+ (NEW."CompletedAt" IS NULL AND coalesce(starts_with(NEW."WaitingFor", 'turn:'), false))::int
			- (OLD."CompletedAt" IS NULL AND coalesce(starts_with(OLD."WaitingFor", 'turn:'), false))::int,
		"Failed" = f."Failed" + (NEW."CompletedAt" IS NOT NULL AND NEW."Status" <> 'Completed')::int
			- (OLD."CompletedAt" IS NOT NULL AND OLD."EndedAs" IS NOT NULL)::int
	WHERE f."Process" = NEW."ParentProcess" AND f."TransactionID" = NEW."ParentTransactionID"
		AND f."ReplayID" = NEW."ParentReplayID" AND f."Place" = NEW."ParentPlace"
	RETURNING * INTO family;
	IF family."NextSweepAt" > now() AND (family."Pending" = 0 OR family."Failed" > family."Tolerated") THEN
		UPDATE "Order_Family" f SET "NextSweepAt" = now()
		WHERE f."Process" = family."Process" AND f."TransactionID" = family."TransactionID"
			AND f."ReplayID" = family."ReplayID" AND f."Place" = family."Place";
	END IF;
	IF family."Concurrent" IS NOT NULL THEN
		PERFORM "Order_Family_grant"(family);
	END IF;
	RETURN NULL;
END $$;--> statement-breakpoint
-- The functions work for every search_path, and for a role that may update only some columns of "Order_Header".
DO $$ BEGIN
	EXECUTE format('ALTER FUNCTION "Order_Header_join"() SET search_path = %I, pg_temp', current_schema());
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_joined" AFTER UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."ParentItem" IS NOT NULL AND (NEW."CompletedAt" IS NULL) <> (OLD."CompletedAt" IS NULL))
	EXECUTE FUNCTION "Order_Header_join"();
