-- What a replica of an earlier release leaves undone, because it does not know families and entries.
-- The family of a parent that ends while it waits is due at once. A family that another statement has locked is skipped,
-- so that no two statements can deadlock: the sweeper finds it later.
CREATE FUNCTION "Order_Header_leave"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	UPDATE "Order_Family" SET "NextSweepAt" = now() WHERE ctid = any (ARRAY(
		SELECT ctid FROM "Order_Family"
		WHERE "Process" = NEW."Process" AND "TransactionID" = NEW."TransactionID" AND "ReplayID" = NEW."ReplayID"
			AND "NextSweepAt" > now()
		FOR UPDATE SKIP LOCKED));
	RETURN NULL;
END $$;--> statement-breakpoint
-- The erasure of a run takes these members of its items, and what its entries say of the written fields.
CREATE FUNCTION "Order_Header_erase"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	UPDATE "Order_Item" SET "State" = NULL, "Report" = NULL, "Ask" = NULL, "Sender" = NULL
	WHERE "Process" = NEW."Process" AND "TransactionID" = NEW."TransactionID" AND "ReplayID" = NEW."ReplayID"
		AND num_nonnulls("State", "Report", "Ask", "Sender") > 0;
	UPDATE "Book_Entry" SET "Fields" = NULL, "Changed" = NULL,
		"State" = CASE WHEN "State" = 'Superseded' THEN "State" ELSE 'Unproven' END
	WHERE "Process" = NEW."Process" AND "TransactionID" = NEW."TransactionID" AND "ReplayID" = NEW."ReplayID";
	RETURN NULL;
END $$;--> statement-breakpoint
-- The functions work for every search_path, and for a role that may not change these tables.
DO $$ BEGIN
	EXECUTE format('ALTER FUNCTION "Order_Header_leave"() SET search_path = %I, pg_temp', current_schema());
	EXECUTE format('ALTER FUNCTION "Order_Header_erase"() SET search_path = %I, pg_temp', current_schema());
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_left" AFTER UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."CompletedAt" IS NOT NULL AND starts_with(OLD."WaitingFor", 'children:'))
	EXECUTE FUNCTION "Order_Header_leave"();--> statement-breakpoint
CREATE TRIGGER "Order_Header_erased" AFTER UPDATE ON "Order_Header"
	FOR EACH ROW WHEN (NEW."ErasedAt" IS NOT NULL AND OLD."ErasedAt" IS NULL)
	EXECUTE FUNCTION "Order_Header_erase"();
