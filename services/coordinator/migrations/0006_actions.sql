CREATE TABLE "Order_Action" (
	"ID" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "Order_Action_ID_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"At" timestamp with time zone DEFAULT now() NOT NULL,
	"KeyID" text NOT NULL,
	"Person" text,
	"Action" text NOT NULL,
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C",
	"ReplayID" integer,
	"Realm" text,
	"Reason" text,
	"Outcome" text NOT NULL
);
--> statement-breakpoint
CREATE INDEX "Order_Action_process" ON "Order_Action" USING btree ("Process","ID");--> statement-breakpoint
CREATE INDEX "Order_Action_transaction" ON "Order_Action" USING btree ("TransactionID","ID") WHERE "TransactionID" is not null;