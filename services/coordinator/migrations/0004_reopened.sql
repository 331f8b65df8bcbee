-- The pull looks for what is not completed by "CompletedAt". Whoever sets the "Status" of a row back by SQL may leave
-- the time there, and nobody would ever find the row. WHEN is checked before anything is called.
CREATE FUNCTION "Order_Header_reopen"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW."CompletedAt" := NULL;
	RETURN NEW;
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_reopened" BEFORE INSERT OR UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL
		AND NEW."Status" IN ('Queued', 'Running', 'Retrying', 'Waiting'))
	EXECUTE FUNCTION "Order_Header_reopen"();--> statement-breakpoint
UPDATE "Order_Header" SET "CompletedAt" = NULL
	WHERE "CompletedAt" IS NOT NULL AND "Status" IN ('Queued', 'Running', 'Retrying', 'Waiting');
