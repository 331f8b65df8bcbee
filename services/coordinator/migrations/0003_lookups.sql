DROP INDEX "Order_Attempt_run";--> statement-breakpoint
DROP INDEX "Order_Header_waiting";--> statement-breakpoint
DROP INDEX "Order_Header_updated";--> statement-breakpoint
DROP INDEX "Order_Item_finished";--> statement-breakpoint
DROP INDEX "Order_Header_due";--> statement-breakpoint
ALTER TABLE "Order_Attempt" DROP CONSTRAINT "Order_Attempt_pkey";--> statement-breakpoint
ALTER TABLE "Order_Attempt" ALTER COLUMN "Process" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Attempt" ALTER COLUMN "TransactionID" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Attempt" ALTER COLUMN "StepName" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Header" ALTER COLUMN "Process" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Header" ALTER COLUMN "TransactionID" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Header" ALTER COLUMN "StepName" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Header" ALTER COLUMN "StepName" SET DEFAULT '';--> statement-breakpoint
ALTER TABLE "Order_Item" ALTER COLUMN "Process" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Item" ALTER COLUMN "TransactionID" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Item" ALTER COLUMN "StepName" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Process" ALTER COLUMN "Process" SET DATA TYPE text collate "C";--> statement-breakpoint
ALTER TABLE "Order_Attempt" ADD CONSTRAINT "Order_Attempt_Process_TransactionID_ReplayID_ID_pk" PRIMARY KEY("Process","TransactionID","ReplayID","ID");--> statement-breakpoint
CREATE INDEX "Order_Header_waiting_for" ON "Order_Header" USING btree ("WaitingFor") WHERE "WaitingFor" is not null;--> statement-breakpoint
CREATE INDEX "Order_Header_completed" ON "Order_Header" USING btree ("CompletedAt") WHERE "CompletedAt" is not null;--> statement-breakpoint
CREATE INDEX "Order_Item_recent" ON "Order_Item" USING brin ("FinishedAt");--> statement-breakpoint
CREATE INDEX "Order_Header_due" ON "Order_Header" USING btree ("NextSweepAt") WHERE "CompletedAt" is null;--> statement-breakpoint
-- Room on the page for the versions of a row that claims make: only then do they write to no index.
ALTER TABLE "Order_Header" SET (fillfactor = 60);
