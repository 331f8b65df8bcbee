CREATE TABLE "Order_Delayed" (
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"KeyID" text collate "C" NOT NULL,
	"At" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "Order_Delayed_Process_TransactionID_pk" PRIMARY KEY("Process","TransactionID")
);
--> statement-breakpoint
CREATE INDEX "Order_Delayed_key" ON "Order_Delayed" USING btree ("KeyID");