CREATE TABLE "Order_Webhook" (
	"TransactionID" text collate "C" PRIMARY KEY NOT NULL,
	"ID" bigint GENERATED ALWAYS AS IDENTITY (sequence name "Order_Webhook_ID_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"Receiver" text collate "C" NOT NULL,
	"Realm" text,
	"OrderedBy" text collate "C" NOT NULL,
	"InitialData" jsonb NOT NULL,
	"At" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE INDEX "Order_Webhook_order" ON "Order_Webhook" USING btree ("Receiver","OrderedBy","ID");