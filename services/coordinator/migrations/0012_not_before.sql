ALTER TABLE "Order_Header" ADD COLUMN "NotBefore" timestamp with time zone;--> statement-breakpoint
-- The new column is null in every row, so the rows need no check. A check would read the whole table under a lock that
-- all other statements wait for.
ALTER TABLE "Order_Header" ADD CONSTRAINT "Order_Header_NotBefore" CHECK (("NotBefore" is null or "NotBefore" between '0001-01-02 00:00+00' and '9999-12-30 00:00+00')) NOT VALID;--> statement-breakpoint
-- A claim checks "NextAttemptAt" only. A program that inserts a row may give "NotBefore" alone. WHEN is checked before
-- anything is called.
CREATE FUNCTION "Order_Header_delay"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW."NextAttemptAt" := NEW."NotBefore";
	RETURN NEW;
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_delayed" BEFORE INSERT ON "Order_Header"
	FOR EACH ROW WHEN (NEW."NotBefore" > coalesce(NEW."NextAttemptAt", now()))
	EXECUTE FUNCTION "Order_Header_delay"();
