-- Finds the keys that have waited longest. An earlier release works with it unchanged.
CREATE INDEX "Order_Slot_waiting" ON "Order_Slot" USING btree ("Process","Priority" DESC NULLS FIRST,"DueAt","TransactionID","ReplayID","Key") WHERE not "Held";
