-- Slots that the keys of a process share: the rows with a slot are counted for the whole process, and the waiting rows of
-- each key are read by priority. A version that does not know the priority inserts rows with 0 and sorts those of a key.
DROP INDEX "Order_Slot_order";--> statement-breakpoint
ALTER TABLE "Order_Slot" ADD COLUMN "Priority" smallint DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX "Order_Slot_order" ON "Order_Slot" USING btree ("Process","Held","Key","Priority" DESC NULLS FIRST,"DueAt","TransactionID","ReplayID");
