CREATE TABLE "Order_Slot" (
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"ReplayID" integer NOT NULL,
	"Key" text collate "C" NOT NULL,
	"Held" boolean NOT NULL,
	"DueAt" timestamp with time zone NOT NULL,
	CONSTRAINT "Order_Slot_Process_TransactionID_ReplayID_pk" PRIMARY KEY("Process","TransactionID","ReplayID")
);
--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "ConcurrencyKey" text;--> statement-breakpoint
CREATE INDEX "Order_Slot_order" ON "Order_Slot" USING btree ("Process","Key","Held","DueAt","TransactionID","ReplayID");