-- Whoever inserts a row by SQL leaves "NextSweepAt" at its default: it is due, and no message speaks of it.
-- What a coordinator queues is due for the pull only later, and costs nothing here: WHEN is checked before
-- anything is called. Equal notifications of one transaction arrive as one.
CREATE FUNCTION "Order_Header_notify"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('Order_Header', '');
	RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER "Order_Header_inserted" AFTER INSERT ON "Order_Header"
	FOR EACH ROW WHEN (NEW."NextSweepAt" <= now()) EXECUTE FUNCTION "Order_Header_notify"();
