DROP INDEX "Order_Header_newest";--> statement-breakpoint
CREATE INDEX "Order_Header_newest" ON "Order_Header" USING btree ("Process","CreatedAt","TransactionID","ReplayID") WHERE "Process" <> '';