CREATE TABLE "Order_Absorbed" (
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"AbsorbedBy" text collate "C" NOT NULL,
	"At" timestamp with time zone DEFAULT now() NOT NULL,
	CONSTRAINT "Order_Absorbed_Process_TransactionID_pk" PRIMARY KEY("Process","TransactionID")
);
--> statement-breakpoint
CREATE TABLE "Order_Debounce" (
	"Process" text collate "C" NOT NULL,
	"Realm" text collate "C" NOT NULL,
	"Key" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"Until" timestamp with time zone NOT NULL,
	CONSTRAINT "Order_Debounce_Process_Realm_Key_pk" PRIMARY KEY("Process","Realm","Key")
);
--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "DebounceKey" text;--> statement-breakpoint
ALTER TABLE "Order_Header" ADD COLUMN "Absorbed" integer;--> statement-breakpoint
CREATE INDEX "Order_Absorbed_run" ON "Order_Absorbed" USING btree ("Process","AbsorbedBy");--> statement-breakpoint
CREATE INDEX "Order_Debounce_run" ON "Order_Debounce" USING btree ("Process","TransactionID");